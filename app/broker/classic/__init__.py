"""The topics of the classic generation that a broker has."""
