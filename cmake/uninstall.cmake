# Removes the files that MANIFEST lists, and folders that belong to Troop alone. Run by the target
# `uninstall`. Shared folders (bin, lib, include) stay, even when empty, and so do folders with a
# file that the installation did not write.
cmake_policy(VERSION 3.24)  # CMP0009: GLOB_RECURSE lists links and does not follow them
if(NOT EXISTS "${MANIFEST}")
  message(FATAL_ERROR "nothing to uninstall: ${MANIFEST} is missing; run the target install first")
endif()
file(STRINGS "${MANIFEST}" files)
# The common parent of all files is the prefix, or above or below it. It and its parents never
# belong to Troop alone, even if the prefix is called /home/troop.
list(GET files 0 common)
foreach(file IN LISTS files)
  cmake_path(IS_PREFIX common "${file}" inside)
  while(NOT inside)
    cmake_path(GET common PARENT_PATH common)
    cmake_path(IS_PREFIX common "${file}" inside)
  endwhile()
endforeach()
set(folders "")
foreach(file IN LISTS files)
  file(REMOVE "$ENV{DESTDIR}${file}")
  file(RELATIVE_PATH folder "${common}" "${file}")
  cmake_path(GET folder PARENT_PATH folder)
  while(folder MATCHES "(^|/)troop(_policy)?(/|$)")
    list(APPEND folders "$ENV{DESTDIR}${common}/${folder}")
    cmake_path(GET folder PARENT_PATH folder)
  endwhile()
endforeach()
# Longest paths first, so that subfolders are removed before their parents.
list(REMOVE_DUPLICATES folders)
list(SORT folders ORDER DESCENDING)
foreach(folder IN LISTS folders)
  file(GLOB_RECURSE left "${folder}/*")
  if(IS_DIRECTORY "${folder}" AND NOT IS_SYMLINK "${folder}" AND NOT left)
    file(REMOVE_RECURSE "${folder}")
  endif()
endforeach()
file(REMOVE "${MANIFEST}")
