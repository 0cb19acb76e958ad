"""One value per slot, whatever fails: Paxos, whose every decision names the voters of the next.

`chain` is the machine; the others are its roles and what keeps it short of messages. What the values are about, it does
not know.
"""
