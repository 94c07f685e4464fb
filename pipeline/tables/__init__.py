"""Tables that loads fill: what is loaded when, and how it takes effect all at once."""
