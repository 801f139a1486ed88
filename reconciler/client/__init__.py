"""One authenticated session with an API server: requests, typed answers, and errors by what to do about them.

`protocol` says what is needed, `api` does it over any transport, `http` and `credentials` are the one transport that
reaches a real server. Import them by module: this file stays empty so that reading the protocol loads no HTTP library.
"""
