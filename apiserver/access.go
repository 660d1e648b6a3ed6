// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"strings"

	genericapiserver "k8s.io/apiserver/pkg/server"
)

// opensAPI tells whether a path that skips authorization covers resources.
func opensAPI(path string) bool {
	path = "/" + strings.TrimPrefix(path, "/")
	prefix, wildcard := strings.CutSuffix(path, "*")
	return path == "/api" || path == "/apis" || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/apis/") ||
		wildcard && strings.HasPrefix("/apis/", prefix)
}

// checkAccess refuses a configuration in which everything is allowed, or nobody is known.
func checkAccess(config *genericapiserver.Config) error {
	if config.Authorization.Authorizer == nil {
		return errors.New("start without an authorizer: refused, everything would be allowed")
	}
	if config.Authentication.Authenticator == nil {
		return errors.New("start without an authenticator: refused")
	}
	return nil
}
