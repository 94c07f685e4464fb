"""The parts that producers, consumers and admin clients share: settings, shells, connecting, encoding, deliveries."""
