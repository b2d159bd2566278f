// A shared library that is not a plug-in.
extern "C" int NoPlugin() { return 1; }
