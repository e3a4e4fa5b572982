"""How the systems of users are reached: the names of tables, addresses, and the parameters of JDBC."""
