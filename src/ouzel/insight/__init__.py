"""What a user looks at when an answer surprises: why a match did not come about, and a picture of those that did."""
