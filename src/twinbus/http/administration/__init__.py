"""The administration API: requests in (`put_requests`), entries out (`presenter`), and the API that connects them."""
