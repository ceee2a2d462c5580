# One case of compile_fail.cmake: -Dcompile=<command> -Dsentence=<regex> -Dlines=<at most>.
#
# Passes only if the compiler refuses, its first error is the sentence, and no more than so many
# lines of its output end with that sentence: what stands before it is template backtrace.

execute_process(COMMAND ${compile} RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
if(result EQUAL 0)
  message(FATAL_ERROR "it compiles, but should be refused with: ${sentence}")
endif()
string(REPLACE ";" "," text "${text}")
string(REGEX REPLACE "[][]" "|" text "${text}")  # unbalanced, they would join elements of a list
string(REPLACE "\n" ";" output "${text}")
set(count 0)
foreach(line IN LISTS output)
  math(EXPR count "${count} + 1")
  if(NOT line MATCHES "error: ")
    continue()
  endif()
  if(NOT line MATCHES "error: (static.assert|#error|\"?shardwise).*${sentence}")
    message(FATAL_ERROR "the first error is another one than: ${sentence}\n${text}")
  endif()
  if(count GREATER lines)
    message(FATAL_ERROR "the sentence comes in line ${count}, and at most ${lines} are bearable\n"
                        "${text}")
  endif()
  message("line ${count}: ${line}")
  return()
endforeach()
message(FATAL_ERROR "no error in what the compiler says:\n${text}")
