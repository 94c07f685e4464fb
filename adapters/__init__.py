"""One folder per technology that fulfils a port. Only `app.compose` knows them."""
