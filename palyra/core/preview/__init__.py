"""Previews of proposed calls: structured blocks for people, and their text."""
