"""The pages of the console: they ask the endpoints of the API with the rights of the token that the browser shows."""
