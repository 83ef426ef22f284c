# What `make install` puts where: bin/trireme, share/man/man1/trireme.1, share/trireme (the nano model,
# files for operators), lib/systemd/system/trireme.service. DESTDIR and PREFIX are honoured.
include(GNUInstallDirs)

# The man page is made from the program's own --help, so that it cannot fall behind.
find_program(PYTHON3 python3 REQUIRED)
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/trireme.1
  COMMAND ${PYTHON3} ${CMAKE_SOURCE_DIR}/tools/man.py $<TARGET_FILE:trireme> ${CMAKE_BINARY_DIR}/trireme.1
  DEPENDS trireme ${CMAKE_SOURCE_DIR}/tools/man.py COMMENT "writing trireme.1" VERBATIM)
if(TRI_SANITIZE OR TRI_FUZZ)
  add_custom_target(man DEPENDS ${CMAKE_BINARY_DIR}/trireme.1)
else()
  add_custom_target(man ALL DEPENDS ${CMAKE_BINARY_DIR}/trireme.1)
endif()

install(TARGETS trireme RUNTIME)
install(FILES ${CMAKE_BINARY_DIR}/trireme.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(DIRECTORY models/nano DESTINATION ${CMAKE_INSTALL_DATADIR}/trireme/models)
install(FILES ops/nginx.conf ops/litellm.yaml ops/prometheus.yml ops/prometheus-alerts.yml
        ops/prometheus-alerts-test.yml ops/grafana-dashboard.json
        DESTINATION ${CMAKE_INSTALL_DATADIR}/trireme/ops)
# The prefix is known only when installing.
install(CODE "
  set(BINDIR \${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR})
  set(to \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/system)
  configure_file(${CMAKE_SOURCE_DIR}/ops/trireme.service \${to}/trireme.service @ONLY)
  message(STATUS \"Installing: \${to}/trireme.service\")")
