"""A home that is lived in: rooms, furniture, things that move, and a robot that goes round and looks."""
