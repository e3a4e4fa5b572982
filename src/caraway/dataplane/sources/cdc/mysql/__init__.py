"""Change capture from MySQL and MariaDB, by their binary log."""
