"""What combinators are made of: machines, orders and checks that several of them share."""
