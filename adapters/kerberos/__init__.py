"""Kerberos by the system's GSSAPI library and the package gssapi."""
