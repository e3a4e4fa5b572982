"""The common part of watches, which are processes beside a server that look at data which is there already."""
