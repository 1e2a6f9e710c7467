"""From runs of records to stored segments."""
