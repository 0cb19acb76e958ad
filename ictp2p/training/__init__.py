"""The peer as training sees it: `mesh`, what policies and collective calls are answered by, and its parts."""
