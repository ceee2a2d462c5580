# cmake -DFROM=include -DTO=folder -DHEADERS="a.hpp b.hpp" -P replace_primitives.cmake
# copies headers of the library and puts the simulator's primitives in place of the standard ones.

separate_arguments(HEADERS)
foreach(header IN LISTS HEADERS)
  file(READ ${FROM}/${header} text)
  foreach(name atomic< mutex condition_variable thread this_thread chrono::steady_clock fprintf _Exit)
    string(REPLACE chrono:: "" simulated ${name})
    string(REPLACE _Exit end_process simulated ${simulated})
    string(REPLACE "std::${name}" "sim::${simulated}" text "${text}")
  endforeach()
  string(REPLACE "#pragma once" "#pragma once\n#include \"schedules/primitives.hpp\"" text "${text}")
  file(WRITE ${TO}/${header} "${text}")
endforeach()
