# A port of vcpkg; whoever publishes it fills in REPO and SHA512, which are of a release.
vcpkg_from_github(OUT_SOURCE_PATH SOURCE_PATH REPO "" REF "v${VERSION}" SHA512 0)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}/tools/packaging/cmake" OPTIONS -DATTN_THREADS=own)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME attn CONFIG_PATH lib/cmake/attn)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
