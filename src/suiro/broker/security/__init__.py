"""Who is at the other end of a connection, and what they may do there. Handlers ask through `Exchange.may`."""
