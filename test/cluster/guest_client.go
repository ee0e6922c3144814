package main

import (
	"context"
	"net/http"
	"net/url"
	"strings"
)

// guestClient speaks to the first program of a guest, whose files and sockets the machine does not see.
type guestClient struct {
	url  string
	http *http.Client
}

func (c *Cluster) newGuestClient(n Node) (*guestClient, error) {
	probe, err := c.newProbe()
	if err != nil {
		return nil, err
	}
	return &guestClient{n.guestURL(c), &http.Client{Transport: probe.client.Transport}}, nil // images take their time
}

// bootID names this boot of the guest's kernel.
func (g *guestClient) bootID(ctx context.Context) (string, error) {
	return g.do(ctx, http.MethodGet, "/boot")
}

// images returns the references of the images that the guest has.
func (g *guestClient) images(ctx context.Context) ([]string, error) {
	list, err := g.do(ctx, http.MethodGet, "/images")
	return strings.Fields(list), err
}

// load imports an archive of images that the guest sees.
func (g *guestClient) load(ctx context.Context, archive string) error {
	_, err := g.do(ctx, http.MethodPost, "/images?archive="+url.QueryEscape(archive))
	return err
}

func (g *guestClient) do(ctx context.Context, method, path string) (string, error) {
	answer, err := call(ctx, g.http, method, g.url+path, nil)
	return string(answer), err
}
