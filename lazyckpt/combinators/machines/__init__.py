"""Machines, orders and checks that several combinators share."""
