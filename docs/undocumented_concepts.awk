# Prints the public concepts that have no comment, and fails if there are any: Doxygen 1.9.4 does not
# miss them. usage: awk -f undocumented_concepts.awk HEADER...
FNR == 1 { internal = documented = 0 }
/^namespace .*detail/ { internal = 1 }
/^}  \/\/ namespace .*detail/ { internal = 0 }
/^concept / && !documented && !internal {
  print FILENAME ":" FNR ": concept " $2 " is not documented"
  failed = 1
}
!/^(template|requires|concept| )/ { documented = /^\/\/\// }
END { exit failed }
