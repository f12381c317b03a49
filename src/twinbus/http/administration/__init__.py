"""The administration API: requests in (`administration_request`), entries out (`presenter`), and the API that connects them."""
