# The manual pages dtrain(1) and dtrain-config(5) in man(7), from what the program says of itself:
#   (dtrain --version --json; dtrain help all) | awk -f man.awk
#   (dtrain --version --json; dtrain config help) | awk -f man.awk

# Text as roff takes it: no escapes, no requests, and dashes that one can copy. A new line begins at
# the first space after `width` characters.
function put(text, width,    i, c, column) {
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (column == 0 && (c == "." || c == "'"))
            printf "\\&"
        if (c == " " && column >= width) {
            printf "\n"
            column = 0
            continue
        }
        printf "%s", c == "\\" ? "\\e" : c == "-" ? "\\-" : c
        column++
    }
}

function put_line(text) {
    put(text, 56)
    printf "\n"
}

# A paragraph with a tag: "--config FILE".
function put_tagged(name, value, text) {
    printf ".TP\n\\fB"
    put(name, 1e9)
    printf "\\fR"
    if (value != "") {
        printf "%s\\fI", value ~ /^\[/ ? "" : " "
        put(value, 1e9)
        printf "\\fR"
    }
    printf "\n"
    put_line(text)
}

function put_title(title, volume, name, what) {
    printf ".TH %s %s \"dtrain %s\" \"%s\"\n.nh\n.ad l\n.SH NAME\n", title, date, version, volume
    put(name, 1e9)
    printf " \\- %s\n", what
}

function begin_program() {
    put_title("DTRAIN 1", "User Commands", "dtrain", "train convolutional networks on many CPUs or GPUs")
    print ".SH SYNOPSIS\n.B dtrain\n.RI [ command ]\n.RI [ options ]\n.RI [ arguments ]\n.PP"
    print ".B dtrain \\-\\-ranks\n.I N\n.B \\-\\-config\n.I FILE\n.SH DESCRIPTION"
    print "dtrain trains convolutional networks data\\-parallel with synchronous SGD."
    print "\\-\\-ranks or mpirun starts its ranks; otherwise one process trains alone."
    print "A configuration is a JSON file, whose keys\n.BR dtrain\\-config (5)\nlists.\n.SH COMMANDS"
    others = ".BR dtrain\\-config (5),\n.BR mpirun (1)"
}

function begin_keys() {
    put_title("DTRAIN\\-CONFIG 5", "File Formats", "dtrain-config", "the configuration of dtrain")
    print ".SH DESCRIPTION\nA configuration is a JSON file with an object per section, which has its keys."
    print "The option \\fB\\-\\-set\\fR \\fIsection.key\\fR=\\fIvalue\\fR of\n.BR dtrain (1)\ngives or overrides any of them."
    print "${NAME} and ${NAME:\\-VALUE} stand for variables of the environment."
    others = ".BR dtrain (1)"
}

/^  "dtrain": / { version = $2; gsub(/[",]/, "", version) }
/^  "date": / { date = $2; gsub(/[",]/, "", date) }

# dtrain config help
/^## / {
    if (!others)
        begin_keys()
    print ".SH SECTION " $2
}
/^- `/ {
    key = substr($2, 2, length($2) - 3)
    text = substr($0, length($2) + 4)
    at = match(text, /; default `.*`\.$/)
    put_tagged(key, "", substr(text, 1, at - 1) "; default " substr(text, at + 11, length(text) - at - 12) ".")
}

# dtrain help all
/^usage:/ { begin_program() }
/^Environment:/ { print ".SH ENVIRONMENT" }
/^Exit codes:/ { print ".SH EXIT STATUS" }
/^[A-Z]/ { part = $1 }
/^  dtrain [a-z]/ && $2 != "help" {
    sub(/ \[options\]$/, "")
    printf ".SS dtrain "
    put(substr($0, 10), 1e9)
    printf "\n"
}
/^    [^ -]/ { put_line(substr($0, 5)) }
/^    --/ {
    match($0, /--[a-z-]+/)
    name = substr($0, RSTART, RLENGTH)
    text = substr($0, RSTART + RLENGTH)
    value = ""
    if (match(text, /^\[[^ ]*\]/) || match(text, /^ ([A-Z]|[a-z]+\|)[^ ]*/)) {
        value = substr(text, 1, RLENGTH)
        sub(/^ /, "", value)
        text = substr(text, RLENGTH + 1)
    }
    sub(/^ +/, "", text)
    put_tagged(name, value, text)
}
/^  [^ "]/ && (part == "Environment:" || part == "Exit") {
    text = substr($0, 3 + length($1))
    sub(/^ +/, "", text)
    put_tagged($1, "", text)
}

END { print ".SH SEE ALSO\n" others }
