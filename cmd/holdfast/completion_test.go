package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

// completed is what the program answers to the scripts of the shells, without descriptions.
func completed(t *testing.T, args ...string) (words []string) {
	t.Helper()
	out := check.Got(call(t, append([]string{"__complete"}, args...)...))(t)
	for line := range strings.Lines(out) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		words = append(words, word)
	}
	return words
}

func TestCompletion_KnowsCommandsFlagsValuesAndNames(t *testing.T) {
	const noFiles, directories, files = ":4", ":16", ":0"
	flags := stored(t)
	in := func(args ...string) []string { return append(slices.Clone(flags), args...) }
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"st"}, []string{"standalone", "status", noFiles}},
		{in("stat"), []string{"status", noFiles}},
		{[]string{"volumes", "re"}, []string{"restore", noFiles}},
		{[]string{"help", "volumes", "tr"}, []string{"trash", noFiles}},
		{[]string{"volumes", "adopt", "--recl"}, []string{"--reclaim-policy", noFiles}},
		{[]string{"snapshots", "list", "-o", ""}, []string{"table", "wide", "json", "yaml", "name", noFiles}},
		{[]string{"volumes", "adopt", "v", "--reclaim-policy", "R"}, []string{"Delete", "Retain", noFiles}},
		{[]string{"status", "extra"}, []string{noFiles}},
		{[]string{"volumes", "list", "--pool", ""}, []string{noFiles}},
		{[]string{"cleanup", "--path", ""}, []string{directories}},
		{[]string{"render", "-f", ""}, []string{files}},
		{[]string{"status", "--kubeconfig", ""}, []string{files}},
		{[]string{"--kubeconfig", flags[1], "--context", ""}, []string{"here", "nowhere", noFiles}},
		{[]string{"status", "--kubeconfig", flags[1], "--context", ""}, []string{"here", "nowhere", noFiles}},
		{in("volumes", "delete", ""), []string{"pvc-1", noFiles}},
		{in("volumes", "adopt", ""), []string{"pvc-1", noFiles}},
		{in("volumes", "restore", ""), []string{"pvc-9", noFiles}},
		{in("volumes", "restore", "pvc-9", "--node", ""), []string{"a", noFiles}},
		{in("volumes", "restore", "pvc-9", ""), []string{noFiles}},
		{in("snapshots", "delete", ""), []string{"s-1", noFiles}},
		{[]string{"volumes", "delete", "--kubeconfig", flags[1], "--context", "nowhere", ""}, []string{noFiles}},
	} {
		if got := completed(t, test.args...); !slices.Equal(got, test.want) {
			t.Errorf("%q: %q instead of %q", test.args, got, test.want)
		}
	}
}

// What is typed in a shell is split there, handed to the script, and its answer printed. The packages bash-completion
// and the completion system of zsh, which show the answer, are played.
const (
	inBash = `_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
source <(holdfast completion bash)
COMP_LINE=$1; COMP_POINT=${#1}; COMP_TYPE=9; read -ra COMP_WORDS <<<"$1"
[[ $1 == *' ' ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
$(complete -p holdfast | sed 's/.*-F \([^ ]*\) .*/\1/')
printf '%s\n' "${COMPREPLY[@]}"`
	inZsh = `compdef() { :; }
_describe() { print -l -- "${completions[@]}"; }
source <(holdfast completion zsh)
words=("${(@s: :)1}"); CURRENT=${#words}
_holdfast`
	inFish = `holdfast completion fish | source
complete -C "$argv[1]"`
)

func TestCompletion_WorksInTheShells(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the program; run without -short")
	}
	binary := check.Got(standalone.Binary(t.Context(), t.TempDir()))(t)
	dir := t.TempDir()
	check.OK(t, os.Symlink(binary, filepath.Join(dir, "holdfast")))
	flags := strings.Join(stored(t), " ")
	for shell, script := range map[string][]string{"bash": {"-c", inBash, "bash"}, "zsh": {"-f", "-c", inZsh, "zsh"}, "fish": {"--no-config", "-c", inFish}} {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				hostfs.Skip(t, shell, shell+" is not installed")
			}
			for line, want := range map[string]string{
				"holdfast volumes tra":                   "trash",
				"holdfast status --kubec":                "--kubeconfig",
				"holdfast volumes list -o ya":            "yaml",
				"holdfast " + flags + " volumes list -":  "--output",
				"holdfast volumes delete " + flags + " ": "pvc-1",
			} {
				cmd := exec.CommandContext(t.Context(), shell, append(script, line)...)
				cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+t.TempDir(), "TERM=dumb")
				out, err := cmd.CombinedOutput()
				found := slices.ContainsFunc(strings.Split(string(out), "\n"), func(answer string) bool {
					word := strings.FieldsFunc(answer, func(r rune) bool { return strings.ContainsRune("\t :", r) })
					return len(word) > 0 && word[0] == want
				})
				if err != nil || !found {
					t.Errorf("%q is not completed to %q: %v\n%s", line, want, err, out)
				}
			}
		})
	}
}
