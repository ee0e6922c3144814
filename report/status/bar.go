package status

import "strings"

// What bars are drawn with.
type glyphs struct{ used, promised, free, more string }

var (
	ascii   = glyphs{"#", "=", ".", "..."}
	unicode = glyphs{"█", "▒", "░", "…"}
)

// The shares of a file system from which on the bar of a pool is yellow, and red.
const (
	nearlyFull = 0.80
	full       = 0.95
)

// bar shows of a pool what is used, what else is promised, and what can still be promised. With overcommit more may be
// promised than there is. Any numbers give a bar of that width: one StorageNode must not end the report of all.
func (s Style) bar(p *Pool, width int) cell {
	g := s.glyphs()
	whole := max(float64(p.Capacity), float64(p.Promised)+float64(p.Available), float64(p.Used), 1) // a sum of int64 may overflow
	of := func(bytes int64) int { return int(min(max(float64(bytes)/whole, 0), 1)*float64(width) + 0.5) }
	used, promised := of(p.Used), of(max(p.Promised, p.Used))
	if p.Used > 0 && used == 0 {
		used, promised = 1, max(promised, 1)
	}
	colour := green
	switch share := p.share(); {
	case p.Message != "" || share >= full:
		colour = red
	case share >= nearlyFull:
		colour = yellow
	}
	return cell{strings.Repeat(g.used, used) + strings.Repeat(g.promised, promised-used) + strings.Repeat(g.free, width-promised), colour}
}

func (s Style) glyphs() glyphs {
	if s.Unicode {
		return unicode
	}
	return ascii
}
