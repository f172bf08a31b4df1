"""Plain data that every floor may read: engine configuration, plugin activation, paths."""
