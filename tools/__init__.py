"""What is done with the project as a whole: releases, licences, vendored files. None of it is in the wheel."""
