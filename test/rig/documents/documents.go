// Package documents reads the commands that pages of the documentation show.
package documents

import (
	"regexp"
	"slices"
	"strings"
)

// Paragraphs are the indented blocks of a page, without their indentation.
func Paragraphs(text string) (all []string) {
	var block []string
	depth := 0
	for line := range strings.Lines(text + "\nend\n") {
		trimmed := strings.TrimLeft(line, " ")
		indent := len(line) - len(trimmed)
		if indent >= 4 && (len(block) > 0 || !strings.HasPrefix(trimmed, "- ")) {
			if len(block) == 0 {
				depth = indent
			}
			block = append(block, line[min(depth, indent):])
		} else if len(block) > 0 && trimmed != "\n" {
			all, block = append(all, strings.Join(block, "")), nil
		} else if len(block) > 0 {
			block = append(block, "\n")
		}
	}
	return all
}

var (
	// answers are the lines of a block that shows output, too: its commands follow a dollar sign.
	shown   = regexp.MustCompile(`(?m)^\$ `)
	answers = regexp.MustCompile(`(?m)^(?:\$ (.*)|.*)$`)
)

var (
	// Fenced are the blocks between fences, with the language and the text of each.
	Fenced = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```$")
	inline = regexp.MustCompile("`([^`\n]+)`")
)

// Of returns the calls of some programs that a page shows, or of all, in its blocks and in its sentences.
func Of(page string, programs ...string) (all []Call) {
	page = Fenced.ReplaceAllString(page, "")
	for _, block := range Paragraphs(page) {
		if shown.MatchString(block) {
			block = answers.ReplaceAllString(block, "$1")
		}
		all = append(all, Shell(block)...)
	}
	for _, span := range inline.FindAllStringSubmatch(page, -1) {
		all = append(all, Shell(span[1])...)
	}
	return slices.DeleteFunc(all, func(c Call) bool {
		return len(programs) > 0 && !slices.Contains(programs, c.Words[0]) || len(c.Words) < 2
	})
}

var (
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// Anchors are those that GitHub gives the headings of a page.
func Anchors(page string) (all []string) {
	for _, match := range heading.FindAllStringSubmatch(page, -1) {
		all = append(all, strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-"))
	}
	return all
}
