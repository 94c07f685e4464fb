"""`barnabas top`: a cluster as it works, in the terminal. `state` and `view` are pure; `live` drives them."""
