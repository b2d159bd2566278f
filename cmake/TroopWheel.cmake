# The content of a wheel besides its modules: the program in the folder `bin` of the package
# `troop`, the files that it reads in `share` as in every installation, and a script named `troop`.
# tools/wheel builds it: scikit-build-core runs this project with SKBUILD and TROOP_WHEEL.

if(NOT DEFINED SKBUILD)
  message(FATAL_ERROR "TROOP_WHEEL is for scikit-build-core; run tools/wheel")
endif()
add_subdirectory(python)

# One component, the one that pyproject.toml installs.
install(TARGETS troop RUNTIME DESTINATION troop/bin COMPONENT python)
install(DIRECTORY python/troop_env DESTINATION troop/share/troop/python COMPONENT python
  FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)
file(GLOB configs CONFIGURE_DEPENDS configs/*.toml)
install(FILES ${configs} DESTINATION troop/share/troop/configs COMPONENT python)
install(PROGRAMS python/scripts/troop DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
install(FILES LICENSE THIRD_PARTY.md DESTINATION ${SKBUILD_METADATA_DIR}/licenses COMPONENT python)
