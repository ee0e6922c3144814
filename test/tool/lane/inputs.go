package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// tree is what the work tree has, committed or not: the hash of each file by its path.
type tree map[string]string

// readTree leaves out what git ignores.
func (r *runner) readTree(ctx context.Context) (tree, error) {
	index, err := r.git(ctx, "ls-files", "-s")
	if err != nil {
		return nil, err
	}
	t := tree{}
	for line := range strings.SplitSeq(index, "\n") {
		entry, file, _ := strings.Cut(line, "\t")
		if fields := strings.Fields(entry); len(fields) == 3 {
			t[file] = fields[1]
		}
	}
	changed, err := r.git(ctx, "ls-files", "--modified", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	for file := range strings.SplitSeq(changed, "\n") {
		if file == "" {
			continue
		}
		hash, err := r.git(ctx, "hash-object", "--", file)
		if err != nil {
			hash = "gone"
		}
		t[file] = hash
	}
	return t, nil
}

func (r *runner) git(ctx context.Context, args ...string) (string, error) {
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Stderr = r.root, &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, errs.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

// imports returns, for each package of a group, the directories of the repository that its test binary is compiled from.
func (r *runner) imports(ctx context.Context, g *group) (map[string]map[string]bool, error) {
	const format = `{{if not .Standard}}{{.ImportPath}}{{"\t"}}{{.Dir}}{{"\t"}}{{join .Deps ","}}{{end}}`
	args := append([]string{"list", "-deps", "-test", "-tags", g.tags, "-f", format}, g.packages...)
	out, err := goOutput(ctx, filepath.Join(r.root, g.module), args...)
	if err != nil {
		return nil, err
	}
	dirs, deps := map[string]string{}, map[string]string{}
	for line := range strings.SplitSeq(out, "\n") {
		if row := strings.Split(line, "\t"); len(row) == 3 {
			dirs[plain(row[0])] = row[1]
			if test, is := strings.CutSuffix(row[0], ".test"); is {
				deps[test] = row[2]
			}
		}
	}
	all := map[string]map[string]bool{}
	for test, imported := range deps {
		all[test] = map[string]bool{}
		for path := range strings.SplitSeq(imported, ",") {
			if inside, ok := strings.CutPrefix(dirs[plain(path)], r.root+"/"); ok {
				all[test][inside] = true
			}
		}
	}
	return all, nil
}

// plain is the path of a package that is compiled for a test, as in "a/b [a/b.test]".
func plain(path string) string {
	path, _, _ = strings.Cut(path, " ")
	return path
}

// inputs reports the files that the result of a package can depend on: its own, those that it imports, and all that is no
// Go, such as manifests and scripts. In a lane that runs the built program all that is shipped counts, and where documents
// are tested all of them do.
func (r *runner) inputs(l lane, p testPackage, imported map[string]bool) func(file string) bool {
	own := strings.TrimPrefix(p.dir, r.root+"/")
	return func(file string) bool {
		dir := path.Dir(file)
		switch {
		case file == flakyFile:
			return false
		case l.documents:
			return true
		case strings.HasSuffix(file, ".md"):
			return false
		case strings.HasSuffix(file, "_test.go"):
			return dir == own
		case strings.HasSuffix(file, ".go"):
			return imported[dir] || l.program && !strings.HasPrefix(file, "test/")
		}
		return true
	}
}

// hash is that of the files that count, with their names.
func (t tree) hash(counts func(file string) bool) string {
	var files []string
	for file := range t {
		if counts(file) {
			files = append(files, file)
		}
	}
	slices.Sort(files)
	sum := sha256.New()
	for _, file := range files {
		fmt.Fprintf(sum, "%s %s\n", t[file], file)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}
