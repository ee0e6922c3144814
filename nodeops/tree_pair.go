package nodeops

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// treePair is a tree and its copy, which are walked together.
type treePair struct {
	from, to *node
	into     openPath // the directories of the copy on the current path
}

// pairVisitor has the steps of a walk through a tree. The directories of the copy are in treePair.into.
type pairVisitor interface {
	directory(to, from *node, name string) (*node, error) // opens the copy of a directory, but not that of the root
	enter(from *node, name string) error                  // before the content of a directory
	leave(from *node) error                               // after it
	leaf(from *node, name string) error                   // for anything else
	foreign(from *node, name string) error                // for a mount point
}

func openPair(src, dst string) (p treePair, err error) {
	if p.from, err = openTop(src); err != nil {
		return p, err
	}
	if p.to, err = openTop(dst); err != nil {
		p.from.Close()
	}
	return p, err
}

func openTop(path string) (*node, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return openNode(dir, ".")
}

func (p *treePair) close() {
	p.from.Close()
	p.to.Close()
	p.into.close()
}

func (p *treePair) atRoot() bool { return len(p.into) == 1 }

// here is the current directory of the copy.
func (p *treePair) here() *node { return &p.into.last().node }

func (p *treePair) walk(ctx context.Context, v pairVisitor) error {
	w := treeWalk{
		enter: func(from *node, name string) error { return p.enterBoth(v, from, name) },
		leave: func(from *node) error {
			if err := v.leave(from); err != nil || p.atRoot() {
				return err
			}
			return p.into.leave()
		},
		leaf:    v.leaf,
		foreign: v.foreign,
	}
	return w.walk(ctx, p.from)
}

// enterBoth enters a directory and its copy, but not the copy of the root as a directory of the source: it may lie in it.
func (p *treePair) enterBoth(v pairVisitor, from *node, name string) error {
	made := p.to
	if from.Dev == made.Dev && from.Ino == made.Ino {
		return fmt.Errorf("%s is the copy itself", from.Name())
	}
	if len(p.into) > 0 {
		n, err := v.directory(p.here(), from, name)
		if err != nil {
			return err
		}
		defer n.Close()
		made = n
	}
	dir, err := made.open()
	if err != nil {
		return err
	}
	p.into.enter(dir, made.Stat_t)
	return v.enter(from, name)
}
