"""The XML of the administration API, with the habits of each SDK described where they matter."""
