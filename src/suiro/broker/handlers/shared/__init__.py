"""Code that handlers of several APIs share."""
