"""Bazel 4 has the Java rules built in; @bazel_tools loads them from here."""

java_binary = native.java_binary
java_import = native.java_import
java_library = native.java_library
java_runtime = native.java_runtime
java_toolchain = native.java_toolchain
