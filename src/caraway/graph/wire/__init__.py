"""Graphs and commit requests as bytes, by one structural codec from specs to protobuf and back."""
