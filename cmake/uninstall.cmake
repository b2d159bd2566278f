# Removes the files that MANIFEST lists, and the folders that were Troop's alone. Run by the target
# `uninstall`. Folders that others share (bin, lib, include) stay, even when empty, and so do those
# with a file that the installation did not write.
cmake_policy(VERSION 3.24)  # CMP0009: GLOB_RECURSE lists links and does not follow them
if(NOT EXISTS "${MANIFEST}")
  message(FATAL_ERROR "nothing to uninstall: ${MANIFEST} is missing (run the target install first)")
endif()
file(STRINGS "${MANIFEST}" files)
# What all files have in common is the prefix, or above or below it: it and what is above it is
# never Troop's alone, even if it is called /home/troop.
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
  while(folder MATCHES "(^|/)troop(/|$)")
    list(APPEND folders "$ENV{DESTDIR}${common}/${folder}")
    cmake_path(GET folder PARENT_PATH folder)
  endwhile()
endforeach()
# The longest path first, so that a folder is empty when its turn comes.
list(REMOVE_DUPLICATES folders)
list(SORT folders ORDER DESCENDING)
foreach(folder IN LISTS folders)
  file(GLOB_RECURSE left "${folder}/*")
  if(IS_DIRECTORY "${folder}" AND NOT IS_SYMLINK "${folder}" AND NOT left)
    file(REMOVE_RECURSE "${folder}")
  endif()
endforeach()
file(REMOVE "${MANIFEST}")
