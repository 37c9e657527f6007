//! Errors of other locks, reproduced as tests. Each test names its source.
//!
//! Other tests already guard against these errors (in this suite unless another suite is named):
//!
//! | source | fault | guarded by |
//! |---|---|---|
//! | Redisson #1763, redis-lock-py #3 | a message between trying and subscribing was missed | `a_grant_sent_into_a_subscription_that_breaks_is_told_after_the_reconnect`, `a_grant_whose_message_is_lost_is_told_by_the_next_touch` |
//! | Redisson #3178, #3186 | each dead waiter blocked the queue in turn | `all_waiters_of_a_killed_process_are_skipped_in_one_hand_over` |
//! | Redisson #5698 | renewals were left out | `contract`: `the_watchdog_keeps_a_short_lease_alive_for_many_leases` |
//! | Redisson #4706, #4822 | after a failover the lock hung and its count grew | `waiters_of_a_server_restarted_empty_all_get_the_lock_one_at_a_time_with_rising_tokens` |
//! | Redisson #3994, #5256 | the result of WAIT was ignored; it waited for one of two replicas | `a_grant_that_too_few_replicas_have_is_released_and_says_how_many_came` |
//! | redlock-rb #36 | an expired lock was extended | `scripts`: `a_renewal_after_the_lease_s_end_finds_nothing` |
//! | node-redlock #369 | a retry was blocked by a lock that it had acquired itself | `an_acquire_whose_reply_is_lost_has_the_same_grant_when_it_is_repeated` |
//! | cozy-stack #4911 | renewal stopped and the work was not notified | `contract`: `a_section_is_stopped_when_the_hold_is_lost` |
//! | valkey-glide #2138 | a request was sent after its caller had given up | `an_acquire_that_arrives_after_its_attempt_was_dropped_is_not_granted` |
//!
//! These cannot exist here:
//!
//! - The growing hold count of Redisson #4706 as such: there is no count in Redis, and re-entrance
//!   is counted in the process.

mod application;
mod others;
mod redisson;
