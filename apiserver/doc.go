// SPDX-License-Identifier: Apache-2.0

// Package apiserver assembles ichor-apiserver from k8s.io/apiserver and the storage of package registry: options, their
// checks, configuration and the server. It owns how requests reach the storage (authentication, authorization, patch
// types, OpenAPI, health), and never the rules of a resource.
//
//	options := apiserver.NewOptions()
//	config, err := options.Config(ctx)
//	server, err := config.Complete().New()
//	err = server.Run(ctx)
package apiserver
