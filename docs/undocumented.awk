# Prints the public concepts and empty types that have no comment, and fails if there are any:
# Doxygen 1.9.4 does not miss theirs. usage: awk -f undocumented.awk HEADER...
FNR == 1 { internal = documented = 0 }
/^namespace .*detail/ { internal = 1 }
/^}  \/\/ namespace .*detail/ { internal = 0 }
/^concept |^(struct|class) [A-Za-z0-9_]+( *:.*)? \{\};/ && !documented && !internal {
  print FILENAME ":" FNR ": error: " $1 " " $2 " is not documented."
  failed = 1
}
!/^(template|requires|concept| )/ { documented = /^\/\/\// }
END { exit failed }
