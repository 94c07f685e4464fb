"""`barnabas top`: the live state of a cluster in the terminal. `state` and `view` are pure; `live` drives them."""
