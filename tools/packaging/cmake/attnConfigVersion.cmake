# Before 1.0 a minor version may rename things, so that it has to be the same.
set(PACKAGE_VERSION "@VERSION@")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" attn_minor "${PACKAGE_VERSION}")
string(REGEX MATCH "^[0-9]+(\\.[0-9]+)?" attn_wanted "${PACKAGE_FIND_VERSION}")
if(PACKAGE_FIND_VERSION VERSION_LESS_EQUAL PACKAGE_VERSION AND
   (attn_wanted STREQUAL attn_minor OR NOT PACKAGE_FIND_VERSION))
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
