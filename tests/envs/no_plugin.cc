// A shared library that is no plug-in.
extern "C" int NoPlugin() { return 1; }
