use axum::{Json, Router, routing::post};
use lock_axum::{Keys, Lockable, Locked};

struct Cart {
    id: u64,
}

impl Lockable for Cart {
    fn lock_key(&self) -> Keys {
        format!("cart:{}", self.id).into()
    }
}

async fn pay(_: Locked<Json<Cart>>) {}

fn main() {
    let _: Router = Router::new().route("/", post(pay));
}
