"""Reference trainers: what people copy, and what every verdict is tested on."""
