"""The rule `includes` of tidy.py: what a file names, it or something that it includes declares.

Where several sources of a library are compiled as one, a missing #include does not show. It shows
here, without a compiler: Declared reads what a header declares, and Tree.missing() finds the names
that a file mentions, that some header of ours declares for all, and that neither the file nor any
header that it reaches declares as anything. What text alone does not tell is not reported.
"""
import functools
import re

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
# Headers of ours that plug-ins include otherwise than from the root.
PUBLIC = {"troop_env.h": "envs/plugin/troop_env.h",
          "troop/environment.hpp": "envs/plugin/troop/environment.hpp"}
# Comments, strings and characters. What stands between the digits of 1'000 is no character.
QUOTED = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
                    r"|'(?<![0-9a-fA-F]')(?:\\.|[^'\\\n])+'", re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
TOKEN = re.compile(r"[A-Za-z_]\w*|::|->|&&|==|[{}()<>\[\];:,=~*&]")
CODE = (".h", ".hpp", ".cuh", ".cc", ".cu")
HEADERS = (".h", ".hpp", ".cuh")
# Folders that include what is not in the repository, or otherwise than from its root.
OUTSIDE = ("bench", "examples", "python", "tools")
# The names that are looked at: types, functions, constants, macros. Others are mostly local.
NAME = re.compile(r"\b(?:[A-Z]\w+|k[A-Z]\w*)")
QUALIFIED = re.compile(r"\b([a-z]\w*)::([A-Z]\w+|k[A-Z]\w*)")
NO_DECLARATION = {"return", "throw", "case", "else", "new", "co_return", "goto", "delete", "using",
                  "typedef", "friend", "operator", "do", "and", "or", "not", "public",
                  "private", "protected", "const"}
NO_FUNCTION = {"decltype", "noexcept", "alignas", "explicit", "requires", "__attribute__",
               "__launch_bounds__", "__align__", "static_assert"}

# Found by the type of their argument: each enum's header declares one.
BY_ARGUMENT = {"EnumNames"}

# Standard names, and the header that gives them: of those that the precompiled header lacks.
STANDARD = {
    "<any>": "any any_cast",
    "<barrier>": "barrier",
    "<bit>": "bit_cast popcount countl_zero countr_zero countl_one countr_one has_single_bit "
             "bit_ceil bit_floor bit_width endian rotl rotr",
    "<bitset>": "bitset",
    "<cctype>": "isdigit isalpha isspace isalnum isprint toupper tolower",
    "<charconv>": "from_chars to_chars from_chars_result to_chars_result chars_format",
    "<csignal>": "signal raise sig_atomic_t",
    "<cstdio>": "printf fprintf snprintf fopen fclose fread fwrite fflush fputs puts rename FILE",
    "<cstdlib>": "abort aligned_alloc calloc exit free getenv malloc realloc _Exit quick_exit "
                 "strtol strtod strtoll strtoull atoi system",
    "<forward_list>": "forward_list",
    "<future>": "future shared_future promise packaged_task async future_status",
    "<iomanip>": "setw setfill setprecision put_time get_time quoted",
    "<iostream>": "cout cerr clog cin",
    "<latch>": "latch",
    "<limits>": "numeric_limits",
    "<list>": "list",
    "<numbers>": "numbers",
    "<numeric>": "iota accumulate inner_product reduce transform_reduce partial_sum gcd lcm "
                 "inclusive_scan exclusive_scan adjacent_difference midpoint",
    "<queue>": "queue priority_queue",
    "<random>": "mt19937 mt19937_64 minstd_rand random_device seed_seq generate_canonical "
                "uniform_int_distribution uniform_real_distribution normal_distribution "
                "bernoulli_distribution discrete_distribution exponential_distribution "
                "poisson_distribution geometric_distribution gamma_distribution "
                "binomial_distribution lognormal_distribution",
    "<regex>": "regex smatch cmatch regex_match regex_search regex_replace sregex_iterator",
    "<semaphore>": "counting_semaphore binary_semaphore",
    "<shared_mutex>": "shared_mutex shared_lock shared_timed_mutex",
    "<source_location>": "source_location",
    "<sstream>": "ostringstream istringstream stringstream stringbuf",
    "<stack>": "stack",
    "<stdexcept>": "runtime_error logic_error invalid_argument out_of_range length_error",
    "<stop_token>": "stop_token stop_source stop_callback",
    "<typeindex>": "type_index",
    "<valarray>": "valarray",
}
# Functions of the system.
POSIX = {
    "<arpa/inet.h>": "inet_pton inet_ntop htons htonl ntohs ntohl",
    "<dirent.h>": "opendir readdir closedir",
    "<dlfcn.h>": "dlopen dlsym dlclose dlerror",
    "<fcntl.h>": "posix_fallocate posix_fadvise fcntl openat",
    "<netdb.h>": "getaddrinfo freeaddrinfo gai_strerror",
    "<poll.h>": "poll ppoll",
    "<pthread.h>": "pthread_setaffinity_np pthread_setname_np pthread_atfork",
    "<sched.h>": "sched_setaffinity sched_getaffinity",
    "<signal.h>": "sigaction sigfillset sigemptyset sigaddset pthread_sigmask kill",
    "<sys/epoll.h>": "epoll_create1 epoll_ctl epoll_wait",
    "<sys/eventfd.h>": "eventfd",
    "<sys/file.h>": "flock",
    "<sys/mman.h>": "mmap munmap madvise msync shm_open shm_unlink memfd_create mlock",
    "<sys/prctl.h>": "prctl",
    "<sys/resource.h>": "getrusage getrlimit setrlimit",
    "<sys/socket.h>": "socket socketpair setsockopt getsockopt sendmsg recvmsg getsockname",
    "<sys/statvfs.h>": "statvfs",
    "<sys/utsname.h>": "uname",
    "<sys/wait.h>": "waitpid",
    "<unistd.h>": "fork getpid getppid pread pwrite ftruncate fsync fdatasync usleep _exit execvp "
                  "execve execv isatty sysconf gethostname dup2 rmdir pipe2 unlink access close",
}
# Macros of the same headers.
CONSTANTS = {
    "<cstdio>": "stdin stdout stderr",
    "<fcntl.h>": "O_RDONLY O_WRONLY O_RDWR O_CREAT O_CLOEXEC O_NONBLOCK O_APPEND O_TRUNC F_SETFL "
                 "F_SETFD F_GETFL F_ADD_SEALS",
    "<poll.h>": "POLLIN POLLOUT POLLHUP POLLERR",
    "<signal.h>": "SIGTERM SIGKILL SIGINT SIGCHLD SIGHUP SIGPIPE SIGUSR1 SIGSTOP SIGCONT SIG_DFL "
                  "SIG_IGN SIG_BLOCK SIG_SETMASK",
    "<sys/mman.h>": "PROT_READ PROT_WRITE MAP_SHARED MAP_PRIVATE MAP_FAILED",
    "<sys/socket.h>": "AF_UNIX AF_INET AF_INET6 SOCK_STREAM SOCK_CLOEXEC SOL_SOCKET MSG_NOSIGNAL",
    "<sys/wait.h>": "WNOHANG WIFEXITED WEXITSTATUS WIFSIGNALED WTERMSIG",
}
# Headers that do as well.
ALSO = {"<csignal>": "<signal.h>", "<signal.h>": "<csignal>", "<cctype>": "<ctype.h>",
        "<cstdio>": "<stdio.h>", "<cstdlib>": "<stdlib.h>", "<sched.h>": "<pthread.h>",
        "<arpa/inet.h>": "<netinet/in.h>"}
# Of the names that both googletest and we have, testing::Name is googletest's.
GOOGLETEST = {"testing::Message", "testing::Values"}


def headers_of(table):
    """{name: header} of one of these tables."""
    return {name: header for header, names in table.items() for name in names.split()}


SYSTEM = {"std": headers_of(STANDARD), "call": headers_of(POSIX), "constant": headers_of(CONSTANTS)}
# `int poll(` declares something else, and `x.poll(`, `x->poll(`, `x::poll(` call it.
SYSTEM_USE = re.compile(
    rf"\bstd::(?P<std>{'|'.join(SYSTEM['std'])})\b"
    rf"|(?<![\w.>:~])(?:(?<=return )|(?<!\w ))(?:::)?(?P<call>{'|'.join(SYSTEM['call'])})\("
    rf"|(?<![\w.>:])(?P<constant>{'|'.join(SYSTEM['constant'])})\b")


def blank(match):
    """As many lines as the match, so that what follows keeps its number."""
    quote = '""' if match[0][0] in "R\"'" else " "
    return quote + "\n" * match[0].count("\n")


class Declared:
    """What a text declares outside of functions.

    public: at namespace scope, as Name and as space::Name, and macros; inner: in classes and enum
    classes; forward: types without their definition.
    """

    def __init__(self, text):
        self.public, self.inner, self.forward = set(), set(), set()
        self.public.update(DEFINE.findall(text))
        self.tokens = TOKEN.findall(DIRECTIVE.sub("", text)) + [";"]
        self.at = 0
        self.scope([], False)
        self.tokens = []

    def add(self, name, namespaces, nested):
        """Notes a declaration in these namespaces; nested: in a class of theirs."""
        if nested:
            self.inner.add(name)
        else:
            self.public.add(name)
            space = next((space for space in reversed(namespaces) if space), None)
            if space:
                self.public.add(f"{space}::{name}")

    def skip(self, opening, closing):
        """Past the bracket that closes the one before `at`."""
        depth = 1
        tokens = self.tokens
        while depth and self.at < len(tokens):
            token = tokens[self.at]
            depth += (token == opening) - (token == closing)
            self.at += 1

    def scope(self, namespaces, nested):
        """Reads declarations up to the end of a namespace or of a class."""
        head = []
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            self.at += 1
            if token == "}":
                return
            if token == "{":
                head = self.block(head, namespaces, nested)
            elif token == ";":
                self.statement(head, namespaces, nested)
                head = []
            elif token == ":" and len(head) == 1 and head[0] in ("public", "private", "protected"):
                head = []
            elif token == "[":
                self.skip("[", "]")
            elif token == "(":
                begin = self.at
                self.skip("(", ")")
                if head and head[-1] in NO_FUNCTION:
                    head.pop()
                    continue
                head.append("(")
                if len(head) == 2 and head[0].isupper():  # a macro that makes what it is given
                    for name in self.tokens[begin:self.at - 1]:
                        self.add(name, namespaces, nested)
                    head = []
            else:
                head.append(token)

    def block(self, head, namespaces, nested):
        """Reads what braces hold. Returns what is read by now of a declaration that goes on."""
        words = without_template(head)
        if "namespace" in words:
            name = words[-1] if words[-1] != "namespace" else ""
            self.scope(namespaces + [name], nested)
            return []
        if words == ["extern"]:
            self.scope(namespaces, nested)
            return []
        kind = next((word for word in words if word in ("class", "struct", "union", "enum")), None)
        if kind and "(" not in words[words.index(kind):] and "=" not in words:
            name = type_name(words, kind)
            if name:
                self.add(name, namespaces, nested)
            if kind == "enum":
                begin = self.at
                self.skip("{", "}")
                scoped = "class" in words or "struct" in words
                for name in enumerators(self.tokens[begin:self.at - 1]):
                    self.add(name, namespaces, nested or scoped)
            else:
                self.scope(namespaces, True)
            return ["="]  # what may follow are variables of that type
        self.skip("{", "}")
        if self.at < len(self.tokens) and self.tokens[self.at] in (",", "{", ";"):
            return head + ["="]
        self.statement(head, namespaces, nested)
        return []

    def statement(self, head, namespaces, nested):
        """The names that a declaration without its braces declares."""
        words = without_template(head)
        if not words or words[0] == "friend":
            return
        if words[0] == "using":
            if "=" in words:
                self.add(words[1], namespaces, nested)
            elif "namespace" not in words:
                self.add(words[-1], namespaces, nested)
            return
        if words[0] == "typedef":
            self.add(words[-1], namespaces, nested)
            return
        if words[0] in ("class", "struct", "enum", "union") and "(" not in words and (
                "=" not in words):
            name = type_name(words, words[0])
            if name and words[-1] == name:
                self.forward.add(name)
                return
        for name in declarators(words):
            self.add(name, namespaces, nested)


def without_template(head):
    """A declaration without the template <...> before it."""
    words = head
    while words and words[0] == "template":
        depth, index = 0, 1
        while index < len(words):
            depth += (words[index] == "<") - (words[index] == ">")
            index += 1
            if depth == 0:
                break
        words = words[index:]
    return words


def type_name(words, kind):
    """The name in `class Name final : public Base`."""
    index = words.index(kind) + 1
    name = None
    while index < len(words) and words[index] not in (":", "<"):
        if words[index] not in ("class", "struct", "final"):
            name = words[index]
        index += 1
    return name


def enumerators(tokens):
    """The names between the braces of an enum."""
    depth, fresh = 0, True
    for token in tokens:
        if fresh and depth == 0 and (token[0].isalpha() or token[0] == "_"):
            yield token
        depth += (token in ("(", "{")) - (token in (")", "}"))
        fresh = token == ","


def declarators(words):
    """The function or the variables that a declaration names. Each pair of parentheses is one (."""
    depth, previous, wanted = 0, "", True
    for index, word in enumerate(words + [";"]):
        if word == "<":
            depth += 1
        elif word == ">":
            depth = max(0, depth - 1)
        elif depth == 0 and word in ("(", "=", ";", ",", ":"):
            if wanted and previous[:1].isalpha() and "operator" not in words[:index]:
                if index < 2 or words[index - 2] != "::":
                    yield previous
                if word == "(":
                    return
                wanted = False
            wanted = wanted or word == ","
        previous = word


class File:
    """A source or header: its text without comments and strings, and what it includes.

    own: the headers of ours that it includes; system: the others, as <header>.
    """

    def __init__(self, name, text):
        self.name = name
        self.own = [PUBLIC.get(header, header) for bracket, header in INCLUDE.findall(text)
                    if bracket == '"' or header in PUBLIC]
        self.system = {f"<{header}>" for bracket, header in INCLUDE.findall(text)
                       if bracket == "<"}
        self.text = QUOTED.sub(blank, INCLUDE.sub("", text))

    @functools.cached_property
    def declared(self):
        """What it declares outside of functions."""
        return Declared(self.text)

    @functools.cached_property
    def names(self):
        """What it mentions: Name, and space::Name."""
        qualified = {"::".join(pair) for pair in QUALIFIED.findall(self.text)}
        return set(NAME.findall(self.text)) | qualified


class Tree:
    """All files, and for each name that headers declare for others, those headers."""

    def __init__(self, texts):
        self.files = {name: File(name, text) for name, text in texts.items()}
        self.headers = {name: file for name, file in self.files.items()
                        if name.endswith(HEADERS)}
        self.givers = {}
        for name, file in self.headers.items():
            for public in file.declared.public:
                self.givers.setdefault(public, []).append(name)
        self.spaces = {name.split("::")[0] for name in self.givers if "::" in name}

    def closure(self, file):
        """The names of the headers of ours that a file reaches."""
        reached, ahead = set(), list(file.own)
        while ahead:
            header = ahead.pop()
            if header in self.headers and header not in reached:
                reached.add(header)
                ahead.extend(self.headers[header].own)
        return reached

    def missing(self, file):
        """(offset, name, header that gives it) of names that nothing the file reaches declares."""
        reached = [self.headers[name] for name in self.closure(file)]
        known = set().union(*(header.declared.public for header in reached))
        wanted = (file.names & self.givers.keys()) - known
        if not wanted:
            return
        inner = set().union(*(header.declared.inner for header in reached))
        forward = set().union(file.declared.forward,
                              *(header.declared.forward for header in reached))
        own = file.declared.public | file.declared.inner
        product = not file.name.startswith("tests/")
        for name in sorted(wanted - own - inner - GOOGLETEST - BY_ARGUMENT):
            givers = [header for header in self.givers[name]
                      if not (product and header.startswith("tests/"))]
            if not givers or declares(file.text, name):
                continue
            offset = first_use(file.text, name, self.spaces, name in forward)
            if offset is not None:
                yield offset, name, givers[0]


def declares(text, name):
    """Whether a text declares the name in a way that only a function's body or a template has."""
    if "::" in name:
        return False
    if re.search(rf"\b(?:struct|class|enum|union|typename|concept|using|namespace|define)\s+"
                 rf"{name}\b(?!\s*(?:::|;))", text):
        return True
    if name[0] == "k" and re.search(rf"\w\s+{name}\s*[>,]|,\s+{name}\s*=(?!=)", text):
        return True
    # clang-format leaves no space between a type and its & or *, and two around an operator's.
    for match in re.finditer(rf"(\w+|\w>|>>|[\w>][*&]+)\s+{name}\s*(?:[(;{{,\[)]|=(?!=))", text):
        if match[1] not in NO_DECLARATION:
            return True
    return False


def first_use(text, name, spaces, forward):
    """Where a text uses the name of a namespace of ours; forward: where a type must be complete."""
    if forward:
        pattern = (rf"\b{name}(?=::|\{{|\(|\s+\w+\s*[;={{])|(?:public|make_unique<|make_shared<"
                   rf"|sizeof\()\s*(?:\w+::)*\b{name}\b")
    else:
        pattern = rf"\b{name}\b"
    for match in re.finditer(pattern, text):
        begin = text.rfind(name, 0, match.end())
        before = text[max(0, begin - 60):begin].rstrip()
        if before.endswith((".", "->", "~", "class", "struct")) and not before.endswith("..."):
            continue  # a member, or `friend class Name;`
        if before.endswith("::"):
            qualifier = re.search(r"([\w>]*)::$", before)[1]   # empty in ::Name
            if qualifier and qualifier not in spaces or f"{qualifier}::{name}" in GOOGLETEST:
                continue
        return begin
    return None


def system_missing(tree, file):
    """(offset, name, header that gives it) of names of the system's headers."""
    seen, reached = set(), None
    for match in SYSTEM_USE.finditer(file.text):
        name = match[match.lastgroup]
        header = SYSTEM[match.lastgroup][name]
        if header in seen:
            continue
        seen.add(header)
        if reached is None:
            reached = file.system.union(*(tree.headers[name].system
                                          for name in tree.closure(file)))
        if header not in reached and ALSO.get(header) not in reached:
            yield match.start(), name, header


def check_includes(root, paths):
    """Lines of violations. paths: the files of the repository."""
    texts = {}
    for path in paths:
        relative = path.relative_to(root)
        if path.suffix in CODE and relative.parts[0] not in OUTSIDE and (
                relative.parts[:2] != ("tests", "install")):
            texts[relative.as_posix()] = path.read_text(encoding="utf-8", errors="replace")
    tree = Tree(texts)
    for file in tree.files.values():
        found = {}
        for offset, name, header in [*tree.missing(file), *system_missing(tree, file)]:
            what = f"{name.rpartition('::')[2]} of {header}"
            found[what] = min(found.get(what, offset), offset)
        for what, offset in sorted(found.items(), key=lambda item: item[1]):
            line = file.text.count("\n", 0, offset) + 1
            yield f"{file.name}:{line}: uses {what}, which nothing here includes"
