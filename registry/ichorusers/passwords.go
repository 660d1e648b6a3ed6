// SPDX-License-Identifier: Apache-2.0

package ichorusers

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"

	"maesh.dev/ichor/pkg/apis/ichor"
)

// PasswordResource is under what name passwords are stored. No endpoint has it.
const PasswordResource = "ichoruserpasswords"

// passwords is where hashes are kept: in etcd beside everything else, encrypted at rest if that is configured for the
// resource. The server gives them no watch cache, so they are in no memory for longer than a request.
type passwords struct {
	storage storage.Interface
	prefix  string
	cost    cost
}

func newPasswords(options generic.RESTOptionsGetter) (*passwords, func(), error) {
	resource := ichor.Resource(PasswordResource)
	rest, err := options.GetRESTOptions(resource, &ichor.UserPassword{})
	if err != nil {
		return nil, nil, fmt.Errorf("find the storage of passwords: %w", err)
	}
	prefix := "/" + rest.ResourcePrefix
	backend, destroy, err := rest.Decorator(rest.StorageConfig, prefix,
		func(obj runtime.Object) (string, error) { return prefix + "/" + obj.(*ichor.UserPassword).Name, nil },
		func() runtime.Object { return &ichor.UserPassword{} }, func() runtime.Object { return &ichor.UserPasswordList{} },
		storage.DefaultClusterScopedAttr, nil, &cache.Indexers{})
	if err != nil {
		return nil, nil, fmt.Errorf("build the storage of passwords: %w", err)
	}
	return &passwords{storage: backend, prefix: prefix, cost: standardCost}, destroy, nil
}

func (p *passwords) key(user types.UID) string { return p.prefix + "/" + string(user) }

// set stores the hash of a password for a user, in place of an earlier one.
func (p *passwords) set(ctx context.Context, user types.UID, password string) error {
	hash, err := hashPassword(ctx, password, p.cost)
	if err != nil {
		return err
	}
	err = p.storage.GuaranteedUpdate(ctx, p.key(user), &ichor.UserPassword{}, true, nil,
		storage.SimpleUpdate(func(current runtime.Object) (runtime.Object, error) {
			stored := current.(*ichor.UserPassword)
			if stored.UID == "" {
				stored.ObjectMeta = metav1.ObjectMeta{Name: string(user), UID: user, CreationTimestamp: nowFunc()}
			}
			stored.Hash = hash
			return stored, nil
		}), nil)
	if err != nil {
		return fmt.Errorf("store the password: %w", err)
	}
	return nil
}

// verify tells whether the password is the user's. A user without one has none that fits.
func (p *passwords) verify(ctx context.Context, user types.UID, password string) (bool, error) {
	stored := &ichor.UserPassword{}
	if err := p.storage.Get(ctx, p.key(user), storage.GetOptions{}, stored); err != nil {
		if storage.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("read the password: %w", err)
	}
	return verifyPassword(ctx, password, stored.Hash)
}

// remove forgets the password of a user who is gone.
func (p *passwords) remove(ctx context.Context, user types.UID) error {
	err := p.storage.Delete(ctx, p.key(user), &ichor.UserPassword{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	if err != nil && !storage.IsNotFound(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove the password: %w", err)
	}
	return nil
}
